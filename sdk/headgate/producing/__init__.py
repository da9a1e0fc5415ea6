"""A producer sends under credit, and gets receipts."""
