"""What is shown of a run: tables, charts and pictures, beside the paper's figures."""
