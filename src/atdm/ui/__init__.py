"""What a person looks at while things run: the live page and the server behind it."""
