"""Edits: what a question can change, a class each: its value, how it is read, and what it does to the cluster.

A new edit is a module here, its line in `extender.whatif.edits.table`, and its part of the console's form
(`extender/console/page/what-if-form.js`).
"""
