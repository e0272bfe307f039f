"""What people see: the command line, figures, reports."""
