"""The command line: `gphash`. It reads arguments, shows progress and tables, and hands everything else over."""
