"""A race of minimising oracles: what is asked, who runs, what is made of it, what can be taken away."""
