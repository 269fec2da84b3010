"""Results as people read them: text, figures, and pages that open offline."""
