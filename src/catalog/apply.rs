//! Applying definitions to the catalog, with every refusal.
