package penstock.bench;

import com.google.gson.JsonObject;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.remoting.RPCHook;

/** The account that a command names with access_key and secret_key; its client then signs what it sends. */
final class ClientIdentity {
    private ClientIdentity() {
    }

    /** Null where it names none. */
    static RPCHook hook(JsonObject command) {
        if (!command.has("access_key")) {
            return null;
        }
        return new AclClientRPCHook(new SessionCredentials(
            command.get("access_key").getAsString(), command.get("secret_key").getAsString()));
    }
}
