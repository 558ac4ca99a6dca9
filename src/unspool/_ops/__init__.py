"""Operations: one module a family, every op declared in one place with its rules."""
