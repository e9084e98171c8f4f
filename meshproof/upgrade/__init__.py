"""What an upgrade changes, and which release brought a change. Each stack has an environment of its own."""
