"""The paper's claims: what is checked or decided, and how."""
