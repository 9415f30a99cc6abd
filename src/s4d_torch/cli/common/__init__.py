"""What several commands share: flags and their parsing, checks of options."""
