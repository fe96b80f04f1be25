-- Makes the schema and the table that says which version stands.
CREATE SCHEMA IF NOT EXISTS dialoq;

CREATE TABLE dialoq.installed (
    singleton integer PRIMARY KEY CHECK (singleton = 1),
    -- How many of the schema scripts have been run.
    schema_version integer NOT NULL,
    -- Differs if a text of the verbs, views or roles does.
    logic_hash text NOT NULL,
    installed_by text NOT NULL,
    installed_at timestamptz NOT NULL
);
