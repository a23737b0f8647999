"""Charts as SVG, drawn without a script and without a style in the markup."""
