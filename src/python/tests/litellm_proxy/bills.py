"""A callback of the test proxy that records what LiteLLM bills: a line "TEAM DOLLARS" in the file TEST_BILLS."""

import os

from litellm.integrations.custom_logger import CustomLogger


class Recorder(CustomLogger):
    async def async_log_success_event(self, kwargs, response_obj, start_time, end_time):
        payload = kwargs["standard_logging_object"]
        with open(os.environ["TEST_BILLS"], "a") as bills:
            bills.write(f"{payload['metadata']['user_api_key_team_id']} {payload['response_cost']}\n")


recorder = Recorder()
