"""Hash functions: what is left of training when a row is encoded, and the model file that holds one."""
