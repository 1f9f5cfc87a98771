"""Changes to an environment that the user has asked for; everything else in this package only looks."""
