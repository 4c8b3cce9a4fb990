"""Schemas learned privately: cuts of numbers, categories and types of columns, as plan and release."""
