"""Facts: frozen, typed, each with its source. No judgement here."""
