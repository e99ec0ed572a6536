"""What is done for a request, whoever it came from."""
