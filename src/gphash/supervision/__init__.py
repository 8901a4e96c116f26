"""What is similar: labels, tags and pairs."""
