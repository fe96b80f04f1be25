-- Writes an XML schema collection, new or not, or removes one.
-- Takes: the columns of xml_schema_collection; or the xml_collection_id
-- Gives: nothing
-- Errors: 60005
-- Locks: the row
-- Called by: dialoq_admin (put_xml_schema_collection, delete_xml_schema_collection)
CREATE FUNCTION dialoq.put_xml_schema_collection(p_xml_collection_id integer, p_name text, p_schemas text)
RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off AS $$
BEGIN
    INSERT INTO dialoq.xml_schema_collection AS x (xml_collection_id, name, schemas)
    VALUES (p_xml_collection_id, p_name, p_schemas)
    ON CONFLICT (xml_collection_id) DO UPDATE SET name = excluded.name, schemas = excluded.schemas;
EXCEPTION WHEN data_exception OR integrity_constraint_violation THEN
    PERFORM dialoq.refuse_row('put_xml_schema_collection', SQLERRM);
END
$$;

CREATE FUNCTION dialoq.delete_xml_schema_collection(p_xml_collection_id integer)
RETURNS void LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off AS $$
    DELETE FROM dialoq.xml_schema_collection WHERE xml_collection_id = p_xml_collection_id;
$$;
