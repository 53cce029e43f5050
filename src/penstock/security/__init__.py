"""Who may do what: accounts, their rights, what each request needs, limits, and the record of refusals."""
