"""What a person looks at while things run: the live page and the server behind it."""

DEFAULT = "127.0.0.1:8765"  # address of a page unless told otherwise
