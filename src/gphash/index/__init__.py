"""A Hamming index made for learned codes: exact, aware of uncertainty, durable."""
