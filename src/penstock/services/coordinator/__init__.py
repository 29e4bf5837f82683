"""The coordinator's runtime: decisions of `penstock.groups` are appended, applied, and answered once committed."""
