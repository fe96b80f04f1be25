-- Logins that may write every table of the database, and so the broker's past its functions: members of pg_write_all_data (PostgreSQL 14),
-- with INHERIT or by SET ROLE. Superusers and members of the schema's owner may anyway, and are not named.
-- Members of pg_read_all_data are not named: a login for backups is one.
-- Takes: nothing
-- Gives: subject (the login), amount (1), since (NULL), detail (the role)
SELECT r.rolname::text AS subject, 1::bigint AS amount, NULL::bigint AS since, w.rolname::text AS detail
FROM pg_catalog.pg_roles AS w
JOIN pg_catalog.pg_roles AS r ON pg_catalog.pg_has_role(r.oid, w.oid, 'MEMBER')
WHERE w.rolname = 'pg_write_all_data' AND r.rolcanlogin AND NOT r.rolsuper
    AND pg_catalog.has_database_privilege(r.oid, pg_catalog.current_database(), 'CONNECT')
    AND NOT pg_catalog.pg_has_role(
        r.oid, (SELECT n.nspowner FROM pg_catalog.pg_namespace AS n WHERE n.nspname = 'dialoq'), 'MEMBER')
ORDER BY subject
