"""The methods: a line that is an equation of the paper or of the file ends with its number."""
