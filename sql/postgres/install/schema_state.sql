-- The state of schema dialoq, whether it can be trusted, and what this user may do. Reads PostgreSQL's catalog only, which
-- every user may. A role that owns the schema, or may create in it, can have every user of the broker run the role's own
-- functions: those of views run with the rights of the reader of the view. So can one that has left a trigger on a table.
-- Takes: nothing
-- Gives: has_schema, has_installed, has_roles, is_marked (the comments by which an installation knows its own), objects,
--     missing_to_use, missing_to_install, missing_to_remove, distrust, user_name, database_name
SELECT
    n.oid IS NOT NULL AS has_schema,
    c.oid IS NOT NULL AS has_installed,
    2 = (SELECT count(*) FROM pg_catalog.pg_roles AS r
     WHERE r.rolname IN ('dialoq_user', 'dialoq_admin') AND pg_catalog.has_schema_privilege(r.oid, n.oid, 'USAGE')
         AND pg_catalog.has_table_privilege(r.oid, c.oid, 'SELECT')) AS has_roles,
    pg_catalog.obj_description(c.oid, 'pg_class') IS NOT DISTINCT FROM 'Dialoq' AS is_marked,
    (SELECT count(*) FROM pg_catalog.pg_class AS o
     WHERE o.relnamespace = n.oid AND o.oid IS DISTINCT FROM c.oid AND o.relkind IN ('r', 'p', 'v', 'm', 'f', 'S', 'c'))
    + (SELECT count(*) FROM pg_catalog.pg_proc AS f WHERE f.pronamespace = n.oid) AS objects,
    CASE
        WHEN NOT pg_catalog.has_schema_privilege(n.oid, 'USAGE') OR NOT pg_catalog.has_table_privilege(c.oid, 'SELECT')
            THEN coalesce((
                SELECT CASE
                    WHEN pg_catalog.pg_has_role(r.oid, 'USAGE')
                        THEN pg_catalog.format('the rights of the role %s on schema dialoq, which that role has lost, as in a copy '
                            'restored without privileges; `dialoq install` by the schema''s owner ''%s'' grants them', r.rolname, o.rolname)
                    WHEN pg_catalog.pg_has_role(r.oid, 'MEMBER') THEN pg_catalog.concat('INHERIT for its membership in the role ', r.rolname)
                END
                FROM pg_catalog.pg_roles AS r WHERE r.rolname IN ('dialoq_user', 'dialoq_admin') AND pg_catalog.pg_has_role(r.oid, 'MEMBER')
                ORDER BY pg_catalog.pg_has_role(r.oid, 'USAGE') DESC, r.rolname DESC LIMIT 1), 'membership in the role dialoq_user')
    END AS missing_to_use,
    nullif(pg_catalog.concat_ws(', and ',
        CASE
            WHEN n.oid IS NULL AND NOT pg_catalog.has_database_privilege(d.oid, 'CREATE')
                THEN 'CREATE on the database'
            WHEN n.nspowner <> u.oid
                THEN pg_catalog.format('the login of the owner of schema dialoq, %s', pg_catalog.pg_get_userbyid(n.nspowner))
        END,
        CASE
            WHEN NOT (u.rolcreaterole OR u.rolsuper)
                AND 2 > (SELECT count(*) FROM pg_catalog.pg_roles AS r WHERE r.rolname IN ('dialoq_user', 'dialoq_admin'))
                THEN 'CREATEROLE, to make the roles dialoq_user and dialoq_admin'
        END), '') AS missing_to_install,
    CASE
        WHEN NOT pg_catalog.pg_has_role(n.nspowner, 'USAGE')
            THEN pg_catalog.format('the role of the owner of schema dialoq, %s', pg_catalog.pg_get_userbyid(n.nspowner))
    END AS missing_to_remove,
    CASE
        WHEN c.oid IS NULL AND n.nspowner <> u.oid
            THEN pg_catalog.format('it has no broker and belongs to role ''%s'', not to ''%s''; drop it, or install as its owner',
                o.rolname, u.rolname)
        WHEN NOT (n.nspowner IN (u.oid, d.datdba) OR o.rolsuper OR coalesce((
            SELECT pg_catalog.pg_has_role(n.nspowner, r.oid, 'MEMBER') FROM pg_catalog.pg_roles AS r
            WHERE r.rolname = 'dialoq_admin'), false))
            THEN pg_catalog.format('it belongs to role ''%s'', which is no superuser, not the owner of the database and no member '
                'of dialoq_admin; if its functions are to be trusted, an administrator runs: GRANT dialoq_admin TO %s',
                o.rolname, pg_catalog.quote_ident(o.rolname))
        WHEN c.relowner <> n.nspowner
            THEN pg_catalog.format('it belongs to role ''%s'' and its table ''installed'' to ''%s''; give both one owner',
                o.rolname, pg_catalog.pg_get_userbyid(c.relowner))
        ELSE coalesce((
            SELECT pg_catalog.format('%s may create objects in it; run REVOKE CREATE ON SCHEMA dialoq FROM %s',
                CASE a.grantee WHEN 0 THEN 'every role' ELSE 'role ''' || pg_catalog.pg_get_userbyid(a.grantee) || '''' END,
                CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(a.grantee)) END)
            FROM pg_catalog.aclexplode(n.nspacl) AS a
            WHERE a.privilege_type = 'CREATE' AND a.grantee <> n.nspowner LIMIT 1), (
            -- A function of another role that is no superuser: our functions call each other by name, so an overload of that role
            -- would run with the owner's rights, also after REVOKE CREATE. And a function for clients that runs with their rights.
            SELECT CASE WHEN p.proowner <> n.nspowner
                THEN pg_catalog.format('its function %s belongs to role ''%s'', the schema to ''%s''; drop the function unless Dialoq '
                    'made it, else uninstall the broker and install it again', p.oid::pg_catalog.regprocedure,
                    pg_catalog.pg_get_userbyid(p.proowner), o.rolname)
                ELSE pg_catalog.format('its function %s runs with the rights of its caller; uninstall the broker and install it '
                    'again', p.oid::pg_catalog.regprocedure)
                END
            FROM pg_catalog.pg_proc AS p
            JOIN pg_catalog.pg_roles AS r ON r.oid = p.proowner
            WHERE p.pronamespace = n.oid AND (p.proowner <> n.nspowner AND NOT r.rolsuper
                OR (p.proowner <> n.nspowner OR NOT p.prosecdef) AND p.proname IN (
            -- <each routine> 'NAME',
            'set_manual_now'))
            LIMIT 1), (
            -- What a role has left that had rights on the tables: a trigger runs with the rights of their owner, as do the functions,
            -- operators and types of its condition; a foreign key keeps rows from being deleted. Who may take the owner's role needs no
            -- such way. In a copy without comments, ours are the tables with the names of those of this version.
            SELECT pg_catalog.format('its table %s has a trigger with %s of role ''%s'', which would run with the rights of ''%s''; '
                'an administrator runs DROP TRIGGER %I ON %s, or gives the function to that role', g.tgrelid::pg_catalog.regclass,
                pg_catalog.pg_describe_object(w.refclassid, w.refobjid, 0), r.rolname, o.rolname, g.tgname, g.tgrelid::pg_catalog.regclass)
            FROM pg_catalog.pg_trigger AS g
            JOIN pg_catalog.pg_class AS t ON t.oid = g.tgrelid
            JOIN pg_catalog.pg_depend AS w ON w.classid = 'pg_catalog.pg_trigger'::pg_catalog.regclass AND w.objid = g.oid
            LEFT JOIN pg_catalog.pg_operator AS m ON w.refclassid = 'pg_catalog.pg_operator'::pg_catalog.regclass AND m.oid = w.refobjid
            LEFT JOIN pg_catalog.pg_proc AS p
                ON p.oid = CASE w.refclassid WHEN 'pg_catalog.pg_proc'::pg_catalog.regclass THEN w.refobjid ELSE m.oprcode END
            LEFT JOIN pg_catalog.pg_type AS y ON w.refclassid = 'pg_catalog.pg_type'::pg_catalog.regclass AND y.oid = w.refobjid
            JOIN pg_catalog.pg_roles AS r ON r.oid IN (p.proowner, y.typowner)
            WHERE t.relnamespace = n.oid AND NOT g.tgisinternal AND g.tgenabled <> 'D' AND NOT r.rolsuper
                AND CASE WHEN pg_catalog.obj_description(c.oid, 'pg_class') = 'Dialoq'
                    THEN pg_catalog.obj_description(t.oid, 'pg_class') = 'Dialoq' ELSE t.relname = ANY (known.tables) END
                AND NOT pg_catalog.pg_has_role(r.oid, n.nspowner, 'MEMBER')
            LIMIT 1), (
            SELECT pg_catalog.format('table %s of role ''%s'' has a foreign key to its table %s; an administrator runs: '
                'ALTER TABLE %s DROP CONSTRAINT %I', f.conrelid::pg_catalog.regclass, r.rolname, f.confrelid::pg_catalog.regclass,
                f.conrelid::pg_catalog.regclass, f.conname)
            FROM pg_catalog.pg_constraint AS f
            JOIN pg_catalog.pg_class AS t ON t.oid = f.confrelid
            JOIN pg_catalog.pg_class AS k ON k.oid = f.conrelid
            JOIN pg_catalog.pg_roles AS r ON r.oid = k.relowner
            WHERE f.contype = 'f' AND f.conparentid = 0 AND t.relnamespace = n.oid AND NOT r.rolsuper
                AND CASE WHEN pg_catalog.obj_description(c.oid, 'pg_class') = 'Dialoq'
                    THEN pg_catalog.obj_description(t.oid, 'pg_class') = 'Dialoq' ELSE t.relname = ANY (known.tables) END
                AND NOT pg_catalog.pg_has_role(k.relowner, n.nspowner, 'MEMBER')
            LIMIT 1))
    END AS distrust,
    u.rolname::text AS user_name,
    d.datname::text AS database_name
FROM pg_catalog.pg_database AS d
JOIN pg_catalog.pg_roles AS u ON u.rolname = current_user
LEFT JOIN pg_catalog.pg_namespace AS n ON n.nspname = 'dialoq'
LEFT JOIN pg_catalog.pg_roles AS o ON o.oid = n.nspowner
LEFT JOIN pg_catalog.pg_class AS c ON c.relnamespace = n.oid AND c.relname = 'installed' AND c.relkind = 'r'
CROSS JOIN (SELECT ARRAY[
    -- <each table> 'NAME',
    'installed']::name[]) AS known (tables)
WHERE d.datname = current_database()
