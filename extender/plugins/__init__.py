"""The plugins: each is one feature's part of a scheduling cycle. The table in `extender.plugins.table` lists them."""
