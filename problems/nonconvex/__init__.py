"""Risks with saddle points and their constants: quartics, phase retrieval, factorisation, sigmoid losses."""
