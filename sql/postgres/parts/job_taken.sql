-- The job is taken: reserves tokens when few are left, and sends the notice of a lease that ends soon.
IF token + 1000000 >= v_mark THEN
    PERFORM dialoq.reserve_tokens();
END IF;
-- Every process looks for what is due once a minute.
IF lease_until < v_now + interval '1 minute' THEN
    notices := dialoq.due_notice(lease_until);
    IF NOT v_is_client THEN
        PERFORM dialoq.publish_notices(notices);
    END IF;
END IF;
RETURN NEXT;
RETURN;
