"""Producers: sends under credit, with their receipts."""
