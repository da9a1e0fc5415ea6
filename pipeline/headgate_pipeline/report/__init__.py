"""A report is one page of figures and charts that a browser shows without a network."""
