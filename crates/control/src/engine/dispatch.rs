//! From a request, as it travels, to its verb.

use crate::api::{Request, for_each_verb, to_json};
use crate::caller::Caller;
use crate::engine::state::Engine;
use crate::engine::verb::Verb;
use crate::refusal::{Code, Refusal};
use crate::service::Service;

macro_rules! dispatch {
    ($($verb:ident -> $answer:ty;)*) => {
        /// Checks a request and brings its values into exact form.
        ///
        /// # Errors
        /// The first problem of the request.
        pub fn check(mut request: Request) -> Result<Request, Refusal> {
            match &mut request {
                $(Request::$verb(verb) => verb.check()?,)*
                Request::DaemonPing(_) | Request::DaemonInfo(_) | Request::DaemonStop(_) => {}
            }
            Ok(request)
        }

        impl Service for Engine {
            fn answer(&self, caller: &Caller, request: Request) -> Result<serde_json::Value, Refusal> {
                match request {
                    $(Request::$verb(verb) => self.call(caller, verb).map(|answer| to_json(&answer)),)*
                    Request::DaemonPing(_) | Request::DaemonInfo(_) | Request::DaemonStop(_) => {
                        Err(Refusal::new(Code::ApiRequest, "the server answers this request itself"))
                    }
                }
            }

            fn permit(&self, caller: &Caller, request: &Request) -> Result<(), Refusal> {
                self.permit_guest(caller, request)
            }

            fn sync(&self) {
                self.sync_all();
            }

            fn shutdown(&self, force: bool) -> Result<(), Refusal> {
                Engine::shutdown(self, force)
            }
        }
    };
}

for_each_verb!(dispatch);
