"""Looking at processes of other hosts: how they are reached, what is sent there, what comes back. Installs nothing."""
