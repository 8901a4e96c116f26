"""A gallery: a model, an index of codes, and what is known of the items: labels and pictures."""
