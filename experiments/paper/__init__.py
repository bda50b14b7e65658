"""The paper's tables, the records of our runs, and the pages that compare them."""
