"""What all protocols share, and each of them: roles as state tables, messages, rules, account. It knows no network."""
