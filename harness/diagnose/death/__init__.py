"""Why a command ended: the table of deaths and its rules."""
