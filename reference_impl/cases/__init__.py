"""Which cases the book offers: pages by model, framework, mesh and optimizer, a module a family."""
