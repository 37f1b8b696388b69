"""Retries, circuit breakers and budgets, with or without a guard."""
