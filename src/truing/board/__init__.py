"""Web pages over run directories: views are functions of the record, and the server adds nothing."""
