"""Pages over run directories: views are functions of what is on record, and the server adds nothing."""
