"""Tools shared by experiments: resumable results, runs in processes, figures, reports, other libraries."""
