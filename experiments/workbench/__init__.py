"""What experiments share: kept results, isolated runs, figures, reports, peers."""
