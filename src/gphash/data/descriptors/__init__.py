"""How a picture becomes a row, one descriptor a file."""
