-- What stands in the database, and what this user may do. Reads PostgreSQL's catalog only, which everybody may.
-- Takes: nothing
-- Gives: has_schema, has_installed, objects, missing_to_use, missing_to_install, user_name, database_name
SELECT
    n.oid IS NOT NULL AS has_schema,
    c.oid IS NOT NULL AS has_installed,
    (SELECT count(*) FROM pg_catalog.pg_class AS o
     WHERE o.relnamespace = n.oid AND o.oid IS DISTINCT FROM c.oid AND o.relkind IN ('r', 'p', 'v', 'm', 'f', 'S', 'c'))
    + (SELECT count(*) FROM pg_catalog.pg_proc AS f WHERE f.pronamespace = n.oid) AS objects,
    CASE
        WHEN NOT pg_catalog.has_schema_privilege(n.oid, 'USAGE') OR NOT pg_catalog.has_table_privilege(c.oid, 'SELECT')
            THEN 'membership in the role dialoq_user'
    END AS missing_to_use,
    nullif(pg_catalog.concat_ws(', and ',
        CASE
            WHEN n.oid IS NULL AND NOT pg_catalog.has_database_privilege(d.oid, 'CREATE')
                THEN 'CREATE on the database'
            WHEN n.oid IS NOT NULL AND NOT pg_catalog.pg_has_role(n.nspowner, 'USAGE')
                THEN pg_catalog.format('the role of the owner of schema dialoq, %s', pg_catalog.pg_get_userbyid(n.nspowner))
        END,
        CASE
            WHEN NOT (SELECT r.rolcreaterole OR r.rolsuper FROM pg_catalog.pg_roles AS r WHERE r.rolname = current_user)
                AND 2 > (SELECT count(*) FROM pg_catalog.pg_roles AS r WHERE r.rolname IN ('dialoq_user', 'dialoq_admin'))
                THEN 'CREATEROLE, to make the roles dialoq_user and dialoq_admin'
        END), '') AS missing_to_install,
    current_user::text AS user_name,
    d.datname::text AS database_name
FROM pg_catalog.pg_database AS d
LEFT JOIN pg_catalog.pg_namespace AS n ON n.nspname = 'dialoq'
LEFT JOIN pg_catalog.pg_class AS c ON c.relnamespace = n.oid AND c.relname = 'installed' AND c.relkind = 'r'
WHERE d.datname = current_database()
